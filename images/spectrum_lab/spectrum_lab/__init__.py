"""What Spectrum adds to JupyterLab inside a server's pod.

`server` starts the single-user server, `home` fills a new home, `tensorboard` puts TensorBoard
into the launcher. In the server `extension` runs a `reporter` that tells the `service` how full
its `volumes` are and what `activity` there is, and asks how the server's `standing` is there; lab/
beside this package shows people in JupyterLab what is amiss and what the server has coming.
`pre_stop` runs their script before its end, `command` is `spectrum` in a terminal. Nothing here
knows Kubernetes.
"""

__version__ = "0.1.0"
