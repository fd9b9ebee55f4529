"""Simulation of the whole daemon in one process and in virtual time. One seed gives one run."""
