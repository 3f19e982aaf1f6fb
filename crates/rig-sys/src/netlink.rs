//! Links, addresses, routes and queueing disciplines over rtnetlink.
