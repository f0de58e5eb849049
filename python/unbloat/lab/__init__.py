"""The lab: scenarios on the kernel's own TCP, in network namespaces, through a link emulator in user space.

signal: a scenario, as `simulate` takes it · model: what the kernel does by itself it is told to do (stacks.py); what it
cannot do is said beforehand (vetoes.py); links and queues are `unbloat-emu`'s · action: `lab` gives the tables that
`simulate` gives, `clean` removes what a dead lab left behind.
"""

from unbloat.lab.cleanup.leftovers import Cleaned, clean
from unbloat.lab.execute import lab, lab_all, seconds_needed

__all__ = ["Cleaned", "clean", "lab", "lab_all", "seconds_needed"]
