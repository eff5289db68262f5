"""Why something cannot be done, in one sentence for whoever asked."""


class Problem(Exception):  # noqa: N818 - it is an answer, not a fault of the program
    """What was asked cannot be done. The sentence says what, why and what to do.

    `status` is the HTTP status that fits: 400 nonsense, 403 not theirs, 404 not there, 409 too
    late, 429 too often, 503 not now. `retry_after` is when it can be, in seconds; 0 says nothing.
    """

    def __init__(self, sentence: str, *, status: int = 400, retry_after: int = 0) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.status = status
        self.retry_after = retry_after


def quoted(word: str, *, longest: int = 80) -> str:
    """A word for a sentence; what a person typed is cut, and control characters do not pass."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in word)
    return f"“{clean[:longest]}…”" if len(clean) > longest else f"“{clean}”"
