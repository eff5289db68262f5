"""The one-node Kubernetes of laptops, CI and the README's first command.

`local/up`, `local/down` and `local/test` are this package's commands. It uses the standard
library alone, since it runs before anything is installed.
"""
