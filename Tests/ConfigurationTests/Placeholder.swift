// Tests of this layer.
