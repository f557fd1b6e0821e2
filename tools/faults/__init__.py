"""Parts of `tools/fault_campaign.py`: commands, processes, loss of power, and the faults."""
