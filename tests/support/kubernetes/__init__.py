"""A stand-in for a Kubernetes API server on the loopback interface, for charts: real Helm installs into it.

It checks every object against schemas, as the real one does, and its controllers succeed at once: a Deployment is
available, a test pod has succeeded. What it cannot tell is whether pods would run.
"""
