"""Pods that write to volumes while processes of Ceph are killed, and what is there afterwards."""

import textwrap

from local.ceph import Ceph
from tests.cluster.pods import Pod
from tests.cluster.waiting import wait_until
from tests.storage.outage import start_what_does_not_run
from tests.storage.volumes import Volumes

# Writes numbered files and a numbered line for each, and notes outside of the volume how many it
# was told are stored. Arguments: the volume's path, the note's.
WRITER = textwrap.dedent("""
    import itertools, os, sys
    place, note = sys.argv[1:]
    os.makedirs(f"{place}/files", exist_ok=True)
    with open(f"{place}/lines", "a") as lines:
        for number in itertools.count(1):
            with open(f"{place}/files/{number}", "w") as file:
                file.write(str(number))
                os.fsync(file.fileno())
            lines.write(f"{number}\\n")
            lines.flush()
            os.fsync(lines.fileno())
            with open(f"{note}.new", "w") as told:
                told.write(str(number))
            os.replace(f"{note}.new", note)
""")
# Prints the number of the last line, once every line and file up to it is found whole.
READER = textwrap.dedent("""
    import sys
    place = sys.argv[1]
    numbers = [int(line) for line in open(f"{place}/lines")]
    assert numbers == list(range(1, len(numbers) + 1)), numbers
    assert all(open(f"{place}/files/{n}").read() == str(n) for n in numbers)
    print(len(numbers))
""")


def check_that_nothing_is_lost(volumes: Volumes, ceph: Ceph, *processes: str) -> None:
    """Kill the processes, one after the other, under a pod that writes to both classes.

    Each is started again before the next is killed. The pod goes on each time, and a later one
    finds all that it was told is stored.
    """
    claims = volumes.claim_each("written-by")
    writer = volumes.start_pod("writer", claims)
    for path in claims:
        command = f"python3 -c '{WRITER}' {path} /dev/shm{path} >/dev/shm{path}.out 2>&1 &"
        writer.run("sh", "-c", f"nohup {command}")
    wait_for_more(writer, dict.fromkeys(claims, 0))
    for process in processes:
        ceph.daemons.stop(process, kill=True)
        before = {path: count_told(writer, path) for path in claims}
        start_what_does_not_run()
        wait_for_more(writer, before)
    told = {path: count_told(writer, path) for path in claims}
    volumes.delete_pod("writer")
    reader = volumes.start_pod("reader", claims)
    for path in claims:
        assert int(reader.run("python3", "-c", READER, path)) >= told[path]
    volumes.delete_pod("reader")


def wait_for_more(writer: Pod, before: dict[str, int]) -> None:
    """Return once the pod was told of twenty more on each path."""
    wait_until(lambda: all(count_told(writer, path) >= before[path] + 20 for path in before))


def count_told(pod: Pod, path: str) -> int:
    return int(pod.run("sh", "-c", f"cat /dev/shm{path} 2>/dev/null || echo 0"))
