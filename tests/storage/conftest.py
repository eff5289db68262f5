"""People and their servers, as in the cluster's tests."""

from tests.cluster.conftest import alice, bob, enter, image, kubectl

__all__ = ["alice", "bob", "enter", "image", "kubectl"]
