"""What do clients hold?"""
