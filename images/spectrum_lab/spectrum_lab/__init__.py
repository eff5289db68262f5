"""What Spectrum adds to JupyterLab inside a server's pod.

`server` starts the single-user server, `home` fills a new home, `tensorboard` puts TensorBoard
into the launcher. In the server `extension` runs a `reporter` of how full its `volumes` are, and
`banner` shows people in JupyterLab what is amiss. Nothing here knows Kubernetes.
"""

__version__ = "0.1.0"
