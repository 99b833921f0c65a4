"""What `pilotfish doctor` looks at: one module for each part of a machine that Pilotfish depends on."""
