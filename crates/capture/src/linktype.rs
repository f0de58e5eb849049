//! Names of the link types that can be read, as the registry of tcpdump.org spells them.

/// Number and name of every link type that `link` decodes.
pub const LINKTYPES: &[(u16, &str)] = &[
    (0, "NULL"),
    (1, "ETHERNET"),
    (6, "IEEE802_5"),
    (9, "PPP"),
    (10, "FDDI"),
    (12, "RAW"),
    (14, "RAW"),
    (50, "PPP_HDLC"),
    (51, "PPP_ETHER"),
    (100, "ATM_RFC1483"),
    (101, "RAW"),
    (104, "C_HDLC"),
    (105, "IEEE802_11"),
    (106, "ATM_CLIP"),
    (108, "LOOP"),
    (109, "ENC"),
    (113, "LINUX_SLL"),
    (117, "PFLOG"),
    (119, "IEEE802_11_PRISM"),
    (127, "IEEE802_11_RADIOTAP"),
    (149, "USER2"),
    (163, "IEEE802_11_AVS"),
    (166, "PPP_PPPD"),
    (192, "PPI"),
    (204, "PPP_WITH_DIR"),
    (228, "IPV4"),
    (229, "IPV6"),
    (239, "NFLOG"),
    (258, "PKTAP"),
    (276, "LINUX_SLL2"),
];

/// The name of `linktype`, or its number where it has none here.
pub fn linktype_name(linktype: u16) -> String {
    LINKTYPES
        .iter()
        .find(|(number, _)| *number == linktype)
        .map_or_else(|| linktype.to_string(), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_type_has_its_registered_name_and_an_unknown_one_its_number() {
        assert_eq!(linktype_name(276), "LINUX_SLL2");
        assert_eq!(linktype_name(9999), "9999");
    }
}
