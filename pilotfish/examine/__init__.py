"""`pilotfish examine`: what a drafter's tokens are worth to its target, and what that makes of the speed."""
