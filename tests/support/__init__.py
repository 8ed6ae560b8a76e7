"""What several tests share: running envcheck, staged machines, indexes, images and fake drivers."""
