"""The kubectl command on one cluster, whoever made its kubeconfig."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.commands import run


@dataclass(frozen=True)
class Kubectl:
    """`program` is the command's first words; without a context the current one is used."""

    program: tuple[str, ...]
    kubeconfig: Path
    context: str | None = None

    def __call__(self, *words: str, text: str | None = None) -> str:
        return run([*self.program, *self.make_options(), *words], text=text)

    def get(self, *words: str) -> Any:
        """Return the objects of `kubectl get` as they are."""
        return json.loads(self("get", *words, "-o", "json"))

    def make_options(self) -> list[str]:
        context = ["--context", self.context] if self.context else []
        return ["--kubeconfig", str(self.kubeconfig), *context]
