"""The firewall rules that a cluster leaves in the kernel, and how to take just these out."""

from itertools import pairwise

from local.commands import run, succeeds
from local.network import CNI_NETWORK


def remove_rules(*, of_kubernetes: bool) -> None:
    """Remove the rules of our pods' network, and those of Kubernetes when they are ours.

    Chains of Kubernetes bear no cluster's name. There is one set of them on a machine, so they are
    ours if our kubelet and kube-proxy have run.
    """
    for family in ("iptables", "ip6tables"):
        if not succeeds([f"{family}-save"]):
            continue  # not installed, or not in this kernel
        removal = make_removal(run([f"{family}-save"]), of_kubernetes=of_kubernetes)
        if removal:
            run([f"{family}-restore", "--noflush"], text=removal)
    if of_kubernetes and succeeds(["ipset", "list", "-n"]):
        for name in run(["ipset", "list", "-n"]).split():
            if name.startswith(("KUBE-", "inet6:KUBE-", "kube-router-", "inet6:kube-router-")):
                run(["ipset", "destroy", name])


def make_removal(saved: str, *, of_kubernetes: bool) -> str:
    """Build the input of `iptables-restore --noflush` that removes our chains and what leads there.

    `saved` is the output of `iptables-save`. Other software's rules are not in the text at all, so
    one that is added meanwhile stays as well. The text is empty when nothing is to be removed.
    """
    removal: list[str] = []
    table: list[str] = []
    for line in saved.splitlines():
        if line.startswith("*"):
            table = [line]
        elif line == "COMMIT":
            removal += _make_table_removal(table, of_kubernetes)
        else:
            table.append(line)
    return "".join(f"{line}\n" for line in removal)


def _make_table_removal(table: list[str], of_kubernetes: bool) -> list[str]:
    rules = [line for line in table if line.startswith("-A ")]
    chains = [line.split()[0].removeprefix(":") for line in table if line.startswith(":")]
    of_network = {_find_target(rule) for rule in rules if _is_of_network(rule)}
    ours = [
        chain
        for chain in chains
        if (chain.startswith("CNI-") and chain in of_network)
        or (chain.startswith("KUBE-") and of_kubernetes)
    ]
    if not ours:
        return []
    leading = [rule for rule in rules if _find_target(rule) in ours and rule.split()[1] not in ours]
    return [
        table[0],
        *(rule.replace("-A", "-D", 1) for rule in leading),
        *(f"-F {chain}" for chain in ours),
        *(f"-X {chain}" for chain in ours),
        "COMMIT",
    ]


def _is_of_network(rule: str) -> bool:
    """Tell whether a CNI plugin made the rule for our network: its comment names that."""
    return f'name: \\"{CNI_NETWORK}\\" id: ' in rule


def _find_target(rule: str) -> str:
    """Return the chain that the rule jumps or goes to, or the verdict; empty when it has none."""
    words = rule.split()
    targets = [after for word, after in pairwise(words) if word in ("-j", "-g")]
    return targets[-1] if targets else ""
