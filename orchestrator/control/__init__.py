"""What the controller decides from: measurements, costs, rules, reasons."""
