"""Run the command given as arguments and print what it cost, as JSON: wall and CPU seconds, peak KiB, status.

A process of its own: a child's peak memory counts from the fork on, so whoever starts it has to be small.
"""

import json
import os
import sys
import time

started = time.perf_counter()
quiet = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[quiet])
_, status, usage = os.wait4(process, 0)
wall = time.perf_counter() - started
print(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status)]))
