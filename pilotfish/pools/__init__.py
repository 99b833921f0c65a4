"""The deployment on a Ray cluster as plain values: what Serve is asked for, room for it, and how pools scale.

Free of ray, so that commands can use it without starting one; */deployment.py and pilotfish.serve_app hand it to Ray.
"""
