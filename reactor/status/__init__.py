"""What the agent says about itself on request: probes for the kubelet, an admin socket for people.

Reads State, changes nothing; the one way in is ``inject.py``, which turns words into a fact where the agent allows it.
Importing this package costs nothing, because the command line does so for every call.
"""
