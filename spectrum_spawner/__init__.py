"""Spectrum: JupyterHub servers for teams that share a GPU cluster.

The package holds what hub and team controller share: records (`teams`, `profiles`), pure
builders (`storage`), one view of the cluster (`watch`), the few verbs that write to it
(`kube`), and the two processes' own parts (`spawner`, `controller`). Imports go one way;
`pyproject.toml` says which.
"""

__version__ = "0.1.0"
