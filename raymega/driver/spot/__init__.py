"""tending"""
