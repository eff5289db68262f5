"""Settings of every IPython kernel and shell from these images."""

c = get_config()  # noqa: F821 - traitlets puts it into the namespace

# SQLite does not belong on a network file system, and two servers may share one home.
c.HistoryManager.hist_file = "/tmp/ipython-history.sqlite"
