"""Settings of every server from these images.

A person's own ~/.jupyter/jupyter_server_config.py is read after this file and wins.
"""

c = get_config()  # noqa: F821 - traitlets puts it into the namespace

# After a share is revoked or a token ends, the server must not go on trusting an old answer of
# the hub for JupyterHub's default of 300 s.
c.HubOAuth.cache_max_age = 10

# A team's folder changes while it is listed.
c.ServerApp.contents_manager_class = "spectrum_lab.contents.SharedContents"

# SQLite does not belong on a network file system, and a server has to open notebooks whose home is
# full: signatures of trusted notebooks with their key, and what collaboration keeps where it is
# installed, ids of files and the documents' changes.
c.NotebookNotary.db_file = "/tmp/jupyter-notary.db"
c.NotebookNotary.secret_file = "/tmp/jupyter-notary.secret"
c.BaseFileIdManager.db_path = "/tmp/jupyter-file-ids.db"
c.SQLiteYStore.db_path = "/tmp/jupyter-documents.db"

# Extensions come with the image; what the extension manager installed would be gone at the next
# start. Its list would also cost 0.2 s of each start and a request to the internet.
c.LabApp.extension_manager = "readonly"
c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
c.LabApp.news_url = None
