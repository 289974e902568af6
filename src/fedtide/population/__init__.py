"""Who exists, and who takes part?"""
