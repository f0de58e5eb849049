//! Which way frames go: the fewest hops between two nodes, found once and then followed by number.

use std::collections::{BTreeMap, VecDeque};

/// The routes found so far.
pub struct Routes {
    /// Ports that leave each node: (port, next node).
    ports: Vec<Vec<(u32, usize)>>,
    known: BTreeMap<(usize, usize), u32>,
    paths: Vec<(Vec<u32>, [u16; 2])>,
}

impl Routes {
    /// The directed links as (from, to), numbered in order.
    pub fn new(nodes: usize, links: impl Iterator<Item = (usize, usize)>) -> Routes {
        let mut ports = vec![Vec::new(); nodes];
        for (i, (from, to)) in links.enumerate() {
            ports[from].push((i as u32, to));
        }
        Routes { ports, known: BTreeMap::new(), paths: Vec::new() }
    }

    /// The route between two nodes; the scenario has made sure that there is one.
    pub fn between(&mut self, from: usize, to: usize) -> u32 {
        if let Some(route) = self.known.get(&(from, to)) {
            return *route;
        }
        let mut came: Vec<Option<(usize, u32)>> = vec![None; self.ports.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                break;
            }
            for &(port, next) in &self.ports[node] {
                if next != from && came[next].is_none() {
                    came[next] = Some((node, port));
                    queue.push_back(next);
                }
            }
        }
        let mut path = Vec::new();
        let mut node = to;
        while let Some((before, port)) = came[node] {
            path.push(port);
            node = before;
        }
        path.reverse();
        let route = self.paths.len() as u32;
        self.paths.push((path, [from as u16, to as u16]));
        self.known.insert((from, to), route);
        route
    }

    /// The port at a hop.
    #[inline]
    pub fn port(&self, route: u32, hop: u8) -> u32 {
        self.paths[route as usize].0[usize::from(hop)]
    }

    /// The port at a hop; `None` behind the last.
    #[inline]
    pub fn next_port(&self, route: u32, hop: u8) -> Option<u32> {
        self.paths[route as usize].0.get(usize::from(hop)).copied()
    }

    /// First and last node of a route, those of side 0 first.
    pub fn ends(&self, route: u32, side: u8) -> [u16; 2] {
        let [from, to] = self.paths[route as usize].1;
        if side == 0 { [from, to] } else { [to, from] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Judged by all shortest distances (Floyd and Warshall).
        #[test]
        fn routes_are_connected_and_none_is_shorter(
            nodes in 2..9_usize, links in prop::collection::vec((0..9_usize, 0..9_usize), 0..30)
        ) {
            let links: Vec<_> = links.into_iter().map(|(a, b)| (a % nodes, b % nodes)).collect();
            let far = usize::MAX / 4;
            let mut distance = vec![vec![far; nodes]; nodes];
            (0..nodes).for_each(|n| distance[n][n] = 0);
            links.iter().filter(|(a, b)| a != b).for_each(|&(a, b)| distance[a][b] = 1);
            for via in 0..nodes {
                let from_via = distance[via].clone();
                for row in &mut distance {
                    let to_via = row[via];
                    let through = from_via.iter().map(|rest| to_via + rest);
                    row.iter_mut().zip(through).for_each(|(best, other)| *best = other.min(*best));
                }
            }
            let mut routes = Routes::new(nodes, links.iter().copied());
            for (a, row) in distance.iter().enumerate() {
                for (b, hops) in row.iter().enumerate().filter(|(b, d)| *b != a && **d < far) {
                    let route = routes.between(a, b);
                    let ports: Vec<u32> =
                        (0..).map_while(|hop| routes.next_port(route, hop)).collect();
                    prop_assert_eq!(ports.len(), *hops);
                    let mut at = a;
                    for port in ports {
                        prop_assert_eq!(links[port as usize].0, at);
                        at = links[port as usize].1;
                    }
                    prop_assert_eq!(at, b);
                    prop_assert_eq!(routes.ends(route, 0), [a as u16, b as u16]);
                    prop_assert_eq!(routes.ends(route, 1), [b as u16, a as u16]);
                }
            }
        }
    }

    #[test]
    fn the_shortest_way_is_taken() {
        // 0 → 1 → 2 → 3 and a short cut 1 → 3
        let links = [(0, 1), (1, 2), (2, 3), (1, 3)];
        let mut routes = Routes::new(4, links.into_iter());
        let route = routes.between(0, 3);
        assert_eq!(
            (routes.port(route, 0), routes.port(route, 1), routes.next_port(route, 2)),
            (0, 3, None)
        );
        assert_eq!(routes.between(0, 3), route);
    }
}
