"""Generated programs: nested transformations around questions, against an oracle that uses nothing of adprotocol."""
