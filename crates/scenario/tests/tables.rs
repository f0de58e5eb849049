//! Every entry of the tables of `algo` can be written in a scenario file, and is read back as
//! itself.

use scenario::{Document, Family, Scenario, TraceMissing, TraceText, scenario_value};

fn traces(name: &str) -> Result<TraceText, TraceMissing> {
    match name {
        "trace" => Ok(TraceText("1\n2\n".into())),
        "rates" => Ok(TraceText("0,1000000\n1,2000000\n".into())),
        _ => Err(TraceMissing("not found".to_owned())),
    }
}

/// A file in which `algorithm` stands where its family belongs.
fn file(family: Family, name: &str, algorithm: &str) -> String {
    let mut up = "rate = \"1 Mbit/s\"".to_owned();
    let (mut queue, mut gate, mut congestion, mut window) =
        (String::new(), String::new(), String::new(), String::new());
    match family {
        Family::Medium if ["trace", "rates"].contains(&name) => {
            up = format!("trace = \"{name}\"\nmedium = {algorithm}");
        }
        Family::Medium => up = format!("medium = {algorithm}"),
        Family::Layer => up += &format!("\nlayers = [{algorithm}]"),
        Family::Queue => queue = format!("queue = {algorithm}"),
        Family::Gate => gate = format!("gate = {algorithm}"),
        Family::Congestion => congestion = format!("congestion = {algorithm}"),
        Family::Window => window = format!("window = {algorithm}"),
    }
    format!(
        "[link.up]\n{up}\n{queue}\ndelay = \"1 ms\"\n[link.down]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n\
         [device]\n{gate}\n[[flow]]\nfrom = \"client\"\n{congestion}\n[flow.receiver]\n{window}\n"
    )
}

fn read(text: &str) -> Scenario {
    let document = Document::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    document.scenario::<&str, &str>(&[], 1, &traces).unwrap_or_else(|e| panic!("{e}\n{text}")).0
}

#[test]
fn every_algorithm_can_be_named_alone_and_with_all_its_parameters() {
    for family in Family::ALL {
        for (i, entry) in family.entries().into_iter().enumerate() {
            let defaults = algo::Settings::defaults(entry.params);
            let params = entry.params.iter().zip(&defaults.0);
            let written = params.filter_map(|(p, v)| {
                Some(format!(", {} = {}", p.name, scenario_value(p.unit, v)?))
            });
            let full = format!("{{ kind = \"{}\"{} }}", entry.name, written.collect::<String>());
            for algorithm in [format!("{{ kind = \"{}\" }}", entry.name), full] {
                let scenario = read(&file(family, entry.name, &algorithm));
                let found = match family {
                    Family::Congestion => &scenario.flows[0].sender.congestion,
                    Family::Window => &scenario.flows[0].receiver.window,
                    Family::Queue => &scenario.links[0].queue,
                    Family::Gate => &scenario.nodes[0].device.as_ref().expect("it has one").gate,
                    Family::Medium => &scenario.links[0].medium,
                    Family::Layer => &scenario.links[0].layers[0],
                };
                assert_eq!((found.index, &found.settings), (i, &defaults), "{}", entry.name);
            }
        }
    }
}

#[test]
fn ends_of_ranges_can_be_written_and_lie_in_the_range() {
    for family in Family::ALL {
        for param in family.entries().iter().flat_map(|e| e.params) {
            assert!(param.allows(&(param.default)()), "default of {}", param.name);
            assert_ne!(param.name, "kind", "the name is taken by the algorithm's own");
            let Some(range) = param.range else { continue };
            let (min, max) = range();
            for end in [min, max] {
                assert!(param.allows(&end), "{}", param.name);
                assert!(scenario_value(param.unit, &end).is_some(), "{}", param.name);
            }
        }
    }
}

#[test]
fn a_layer_may_stand_under_its_own_name_because_no_key_of_a_link_has_it() {
    for entry in Family::Layer.entries() {
        let text = format!(
            "[link.up]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n{} = true\n[link.down]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n",
            entry.name
        );
        let layer = &read(&text).links[0].layers[0];
        assert_eq!(layer.settings, algo::Settings::defaults(entry.params), "{}", entry.name);
    }
}
