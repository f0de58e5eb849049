//! Generic netlink (linux/genetlink.h): a family of messages by the name of its kernel subsystem.

use std::io;

use nix::sys::socket::SockProtocol;

use crate::{Attributes, Netlink, Request, attribute};

/// GENL_ID_CTRL, the family that knows the others; CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID and _NAME.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`: command, version, two reserved.
const HEADER: usize = 4;

/// A socket to one family.
#[derive(Debug)]
pub struct Family {
    netlink: Netlink,
    id: u16,
}

impl Family {
    /// Opens a socket and asks for the family's number. An error where the kernel has no such subsystem.
    pub fn open(name: &str) -> io::Result<Family> {
        let mut netlink = Netlink::open_for(SockProtocol::NetlinkGeneric)?;
        let wanted = Attributes::default().with(FAMILY_NAME, format!("{name}\0").as_bytes());
        let answers = netlink.ask(CONTROLLER, Request::Get, &header(GET_FAMILY), &wanted)?;
        let id = answers.iter().find_map(|body| attribute(body.get(HEADER..)?, FAMILY_ID));
        let id = id.and_then(|id| id.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Family { netlink, id: u16::from_ne_bytes(id) })
    }

    /// Sends a command: the attributes of each answer.
    pub fn ask(
        &mut self,
        command: u8,
        request: Request,
        attributes: &Attributes,
    ) -> io::Result<Vec<Vec<u8>>> {
        let answers = self.netlink.ask(self.id, request, &header(command), attributes)?;
        Ok(answers.iter().filter_map(|body| Some(body.get(HEADER..)?.to_vec())).collect())
    }
}

fn header(command: u8) -> [u8; HEADER] {
    [command, 1, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_a_family_of_its_own_and_others_are_absent() {
        let mut controller = Family::open("nlctrl").unwrap();
        assert_eq!(controller.id, CONTROLLER);
        let name = Attributes::default().with(FAMILY_NAME, b"nlctrl\0");
        let answers = controller.ask(GET_FAMILY, Request::Get, &name).unwrap();
        assert_eq!(attribute(&answers[0], FAMILY_NAME), Some(&b"nlctrl\0"[..]));
        assert!(Family::open("no-such-family").is_err());
    }
}
