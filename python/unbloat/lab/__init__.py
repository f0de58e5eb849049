"""The lab: scenarios on the kernel's own TCP, in network namespaces, through a link emulator in user space.

A scenario becomes sysctls, routes and socket options where the kernel can do what it asks for (`setup/tcp_settings.py`). What
the kernel cannot do is reported before anything starts (`setup/unsupported.py`). Links and queues are `unbloat-emu`'s.
`lab` gives the tables that `simulate` gives; `clean` removes the leftovers of labs that were killed.
"""

from unbloat.lab.cleanup.leftovers import Cleaned, clean
from unbloat.lab.execute import lab, lab_all, seconds_needed

__all__ = ["Cleaned", "clean", "lab", "lab_all", "seconds_needed"]
