"""Labs: real sshd, Slurm, Ray and PostgreSQL on machines that are namespaces of this one; for tests and figures."""
