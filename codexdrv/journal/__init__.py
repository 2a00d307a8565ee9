"""The durable truth: deliveries, facts, lives, tombstones, replies."""
