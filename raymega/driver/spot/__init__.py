"""Notices of clouds that a node is to go: read, and told to Ray. The agent on a node stands in `agent`."""
