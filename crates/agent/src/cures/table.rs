//! The table of cures as a macro: from one line per cure, the settings, the attached cures and
//! their figures as structs with a field for each, so that code that needs a certain cure has it
//! by its type.

macro_rules! table {
    ($($name:ident: $cure:ty,)+) => {
        /// What is fixed about every cure.
        pub const TABLE: &[About] = &[$(<$cure as Cure>::ABOUT),+];

        /// Settings of every cure that the configuration wants.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Wanted {
            $(#[doc = concat!("Settings of `", stringify!($name), "`.")]
            pub $name: Option<<$cure as Cure>::Settings>,)+
        }

        impl Wanted {
            /// Reads the settings of every cure from the configuration.
            pub(crate) fn read(document: &Document<'_>) -> settings::Result<Wanted> {
                Ok(Wanted { $($name: <$cure as Cure>::settings(document)?,)+ })
            }

            /// Whether a cure of this place is wanted.
            pub(crate) fn any(&self, place: Place) -> bool {
                false $(|| <$cure as Cure>::ABOUT.place == place && self.$name.is_some())+
            }

            /// The same on this device.
            pub(crate) fn on_device(&self, device: &str) -> Wanted {
                let mut wanted = self.clone();
                $(if let Some(settings) = &mut wanted.$name {
                    <$cure as Cure>::on_device(settings, device);
                })+
                wanted
            }
        }

        /// The cures that are attached.
        #[derive(Default)]
        pub struct Attached {
            $(#[doc = concat!("The cure `", stringify!($name), "`.")]
            pub $name: Option<$cure>,)+
        }

        impl Attached {
            /// Brings every cure of a place to what is wanted: for each, its name in messages and
            /// the lines for the log, or why it is not available.
            pub(crate) fn bring(
                &mut self,
                place: Place,
                wanted: &Wanted,
                site: &Site<'_>,
                journal: &mut Journal,
            ) -> Vec<(&'static str, Result<Vec<String>>)> {
                let mut outcomes = Vec::new();
                $(if <$cure as Cure>::ABOUT.place == place {
                    let outcome = bring(&mut self.$name, wanted.$name.as_ref(), site, journal);
                    outcomes.push((<$cure as Cure>::ABOUT.title, outcome));
                })+
                outcomes
            }

            /// Whether a cure of this place is attached.
            pub(crate) fn any(&self, place: Place) -> bool {
                false $(|| <$cure as Cure>::ABOUT.place == place && self.$name.is_some())+
            }

            /// Names of the cures that are attached.
            pub(crate) fn names(&self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$name.is_some() {
                    names.push(<$cure as Cure>::ABOUT.name);
                })+
                names
            }

            /// Renews every lease; what failed.
            pub(crate) fn renew(&mut self, until_ns: u64) -> Vec<CureError> {
                let mut failed = Vec::new();
                $(if let Some(cure) = &mut self.$name {
                    failed.extend(cure.renew(until_ns).err());
                })+
                failed
            }

            /// Lifts every cure of a place, or lets it act again; what failed.
            pub(crate) fn lift(&mut self, place: Place, lifted: Lifted) -> Vec<CureError> {
                let mut failed = Vec::new();
                $(if <$cure as Cure>::ABOUT.place == place
                    && let Some(cure) = &mut self.$name
                {
                    failed.extend(cure.lift(lifted).err());
                })+
                failed
            }

            /// Periodic work of every cure; lines for the log.
            pub(crate) fn tick(&mut self) -> Vec<String> {
                let mut lines = Vec::new();
                $(if let Some(cure) = &mut self.$name {
                    let failed = cure.tick().err();
                    lines.extend(cure.lines());
                    let title = <$cure as Cure>::ABOUT.title;
                    lines.extend(failed.map(|e| format!("{title}: {e}")));
                })+
                lines
            }

            /// The figures of every cure, and the flows that they see.
            pub(crate) fn report(&mut self) -> Result<(Reports, Vec<FlowStatus>)> {
                let (mut reports, mut flows) = (Reports::default(), Vec::new());
                $(if let Some(cure) = &mut self.$name {
                    let (figures, seen) = cure.report()?;
                    reports.$name = Some(figures);
                    flows.extend(seen);
                })+
                Ok((reports, flows))
            }

            /// The changes in the journal that belong to attached cures.
            pub(crate) fn changes(&self) -> Vec<Change> {
                let mut changes = Vec::new();
                $(changes.extend(self.$name.iter().flat_map(Cure::changes));)+
                changes
            }

            /// Leaves every cure of a place to another agent; what failed.
            pub(crate) fn hand_over(&mut self, place: Place, folder: &Path) -> Vec<CureError> {
                let mut failed = Vec::new();
                $(if <$cure as Cure>::ABOUT.place == place
                    && let Some(cure) = self.$name.take()
                {
                    failed.extend(cure.hand_over(folder).err());
                })+
                failed
            }

            /// Detaches every cure of a place, the last of the table first: what made a clsact
            /// discipline removes it, with all that hangs on it. What failed, by name.
            pub(crate) fn detach(
                &mut self,
                place: Place,
                journal: &mut Journal,
            ) -> Vec<(&'static str, CureError)> {
                type End = fn(&mut Attached, &mut Journal) -> Result<()>;
                let mut each: Vec<(&'static About, End)> = Vec::new();
                $(each.push((&<$cure as Cure>::ABOUT, |all, journal| {
                    all.$name.take().map_or(Ok(()), |cure| cure.detach(journal))
                }));)+
                let ends = each.into_iter().rev().filter(|(about, _)| about.place == place);
                ends.filter_map(|(about, end)| Some((about.title, end(self, journal).err()?)))
                    .collect()
            }
        }

        /// The figures of the cures that are attached, by name.
        #[derive(Default, serde::Serialize)]
        pub struct Reports {
            $(#[doc = concat!("Figures of `", stringify!($name), "`.")]
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $name: Option<<$cure as Cure>::Figures>,)+
        }

        impl Reports {
            /// Each cure, and its figures if it is attached.
            pub fn each(&self) -> Vec<(&'static About, Option<&dyn Figures>)> {
                let figures: Vec<Option<&dyn Figures>> =
                    vec![$(self.$name.as_ref().map(|figures| figures as &dyn Figures)),+];
                TABLE.iter().zip(figures).collect()
            }
        }
    };
}
