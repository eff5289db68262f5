"""The commands `up`, `down` and `test`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from local.errors import Refusal
from local.lock import hold_lock
from local.paths import find_cache, find_state
from local.preflight import check_machine
from local.progress import Progress
from local.suite import PARTS, run_suite
from local.teardown import purge, stop_cluster
from local.up import ExistingCluster, install_demo, install_on, load_images, start_cluster


def main(arguments: Sequence[str]) -> int:
    options = make_parser().parse_args(arguments)
    progress = Progress()
    try:
        return int(options.command(options, progress))
    except Refusal as refusal:
        print(f"local/{options.name}: {refusal}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nlocal/{options.name}: interrupted; run it again to go on", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="local")
    commands = parser.add_subparsers(dest="name", required=True)
    start = commands.add_parser(
        "up",
        prog="local/up",
        description="Start Spectrum on a one-node Kubernetes of this machine.",
    )
    start.set_defaults(command=up)
    start.add_argument("--kubeconfig", type=_existing_file, help="install on this cluster instead")
    start.add_argument("--context", help="context of --kubeconfig; default: its current one")
    start.add_argument("--registry", help="push the images here for --kubeconfig's cluster")
    start.add_argument(
        "--values",
        action="append",
        default=[],
        type=_existing_file,
        help="file of chart values over the demo's; may be given again",
    )
    start.add_argument(
        "--gpu-taint",
        action=argparse.BooleanOptionalAction,
        help="taint the node as GPU nodes are, or take that off; default: leave it as it is",
    )
    start.add_argument(
        "--no-ceph",
        action="store_true",
        help="go without Ceph: volumes are directories of this machine, and there are no buckets",
    )
    start.add_argument("--cluster-only", action="store_true", help="start Kubernetes, no Spectrum")
    end = commands.add_parser("down", prog="local/down", description="Stop what local/up started.")
    end.set_defaults(command=down)
    end.add_argument("--purge", action="store_true", help="remove all data and all builds as well")
    test = commands.add_parser("test", prog="local/test", description="Run the tests.")
    test.set_defaults(command=run_tests)
    test.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all"
    )
    test.add_argument(
        "--long",
        action="store_true",
        help="images for GPUs, long outages, Keycloak, benches and the cluster's life as well",
    )
    return parser


def up(options: argparse.Namespace, progress: Progress) -> int:
    if options.kubeconfig:
        if options.gpu_taint is not None or options.no_ceph or options.cluster_only:
            raise Refusal(
                "--gpu-taint, --no-ceph and --cluster-only are for the local cluster alone"
            )
        existing = ExistingCluster(options.kubeconfig, options.context, options.registry)
        install_on(existing, options.values, progress)
        return 0
    if options.context or options.registry:
        raise Refusal("--context and --registry need --kubeconfig")
    check_machine()
    with hold_lock(find_state() / "lock", progress):
        cluster = start_cluster(
            progress, gpu_taint=options.gpu_taint, with_ceph=not options.no_ceph
        )
        if not options.cluster_only:
            images = load_images(cluster, progress)
            install_demo(cluster, options.values, images, progress)
    return 0


def down(options: argparse.Namespace, progress: Progress) -> int:
    check_machine()
    state = find_state()
    with hold_lock(state / "lock", progress):
        stop_cluster(state, progress)
        if options.purge:
            purge(state, find_cache(), progress)
    return 0


def run_tests(options: argparse.Namespace, progress: Progress) -> int:
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        raise Refusal(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return run_suite(options.parts, long=options.long, progress=progress)


def _existing_file(text: str) -> Path:
    path = Path(text).absolute()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no file {text}")
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
