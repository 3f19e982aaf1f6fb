//! Offload features of an interface (the ethtool ioctl).
