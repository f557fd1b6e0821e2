"""Parts of `tools/fault_campaign.py`: processes, power loss, full disks, and the faults."""
