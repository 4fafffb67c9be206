"""Old name of `what_is_due`."""

from runplan.core.slots import what_is_due as what_is_due
