"""Settings of every server from these images.

A person's own ~/.jupyter/jupyter_server_config.py is read after this file and wins.
"""

import os

c = get_config()  # noqa: F821 - traitlets puts it into the namespace

# After a share is revoked or a token ends, the server must not go on trusting an old answer of
# the hub for JupyterHub's default of 300 s.
c.HubOAuth.cache_max_age = 10

# A team's folder changes while it is listed.
c.ServerApp.contents_manager_class = "spectrum_lab.contents.SharedContents"

# Documents are edited together where the environment says so: on servers of a team. On a personal
# one the extensions would cost a tenth of a start and every opened file a row in their databases.
together = os.environ.get("SPECTRUM_COLLABORATIVE") == "1"
c.ServerApp.jpserver_extensions = {
    "jupyter_server_fileid": together,
    "jupyter_server_ydoc": together,
}
c.YDocExtension.disable_rtc = not together
# Seconds of nobody typing after which a document is saved. Who is away for less than a minute
# finds the document still in memory.
c.YDocExtension.document_save_delay = 0.5
c.YDocExtension.document_cleanup_delay = 60

# Databases do not belong on a network file system, and a server has to open notebooks whose home is
# full: signatures of trusted notebooks with their key, ids of files, the changes of documents that
# are edited together, and what tells whether somebody may go on after the server was restarted.
c.NotebookNotary.db_file = "/tmp/jupyter-notary.db"
c.NotebookNotary.secret_file = "/tmp/jupyter-notary.secret"
c.BaseFileIdManager.db_path = "/tmp/jupyter-file-ids.db"
c.SQLiteYStore.db_path = "/tmp/jupyter-documents.db"
c.YDocExtension.session_store_path = "/tmp/jupyter-collaboration-sessions.json"

# Extensions come with the image; what the extension manager installed would be gone at the next
# start. Its list would also cost 0.2 s of each start and a request to the internet.
c.LabApp.extension_manager = "readonly"
c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
c.LabApp.news_url = None
