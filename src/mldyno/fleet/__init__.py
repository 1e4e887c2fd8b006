"""Many machines in one run: a conductor here, a remote runner on each host, and one pipe between them."""
