"""What does a round cost, and what can each client afford?"""
