"""What the state of a run allows, and in which words it is refused: services go by it, and whoever tells beforehand."""
