"""Steps of fixed shapes: recorded once as CUDA graphs, replayed over static buffers."""
