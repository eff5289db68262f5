"""What ends a command of `local/` with one sentence instead of a traceback."""


class Refusal(Exception):  # noqa: N818 (an answer, and no bug)
    """The command cannot go on; the message says in one line what is wrong and what to do."""
