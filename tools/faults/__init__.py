"""What `tools/fault_campaign.py` is made of: processes, power loss, full disks, and the faults."""
