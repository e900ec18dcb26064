"""Kernels in Triton, as functions on torch tensors that allocate what they return. They know no weights' names.

They compute what `reference` defines. Under TRITON_INTERPRET=1 they run on the processor, one program after another.
"""
