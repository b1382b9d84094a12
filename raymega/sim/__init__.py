"""The same brain in virtual time: what a run would keep of a cluster that loses machines."""
