"""What an agent's runs are found by: the types that it declares, and what may be set. Pure, like the engine around it;
whoever starts a run, drives one, or looks for some may come in."""
