"""SIS: the method, the inclusion problem that it solves for each layer, and the inputs of layers, which that takes."""

from granet.methods.sis.sis import SIS

__all__ = ["SIS"]
