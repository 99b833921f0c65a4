"""What steps cost, when a step begins, and which rows it takes."""
