//! Several runs at once, on one device or on several.
//!
//! A small network leaves most of a GPU idle, so several share it, each in its own thread and stream; on the CPU
//! one run takes all cores and they follow one another. Runs that use the same data share it, on the host and on
//! the GPU. Where runs share a GPU, a later one is made while the others pause. A fleet can be ended at any moment
//! and called again: what is finished is left alone, and what is not goes on from its checkpoint.

mod origins;

use crate::checked::CheckedRecipe;
use crate::choice::DeviceChoice;
use crate::device::{Gpu, Place};
use crate::error::Error;
use crate::gate::Gate;
use crate::observe::{Answer, Ending, Notice, Observer, ObserverError, RunView, StepReport};
use crate::recipe::Recipe;
use crate::run::{RunFolder, keep_failure};
use crate::trainer::Trainer;
use ftprop_data::{Dataset, Source};
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One run of a fleet. A folder that has this run is gone on with; one whose run is finished is left alone.
#[derive(Clone, Debug)]
pub struct Job {
    /// What to train.
    pub recipe: CheckedRecipe,
    /// The run's folder.
    pub folder: PathBuf,
}

/// What a fleet tells whoever watches it.
pub enum FleetEvent<'a> {
    /// All jobs are sound; the first runs are about to be made.
    Begins {
        /// All of them.
        jobs: &'a [Job],
        /// The numbers of those that are not finished.
        waiting: &'a [usize],
        /// How many train at the same time.
        at_once: usize,
        /// Where the first of them trains; nothing where all are finished.
        place: Option<&'a Place>,
        /// Why one that left the choice of the device open got the CPU.
        note: Option<&'a str>,
    },
    /// The GPU's memory is full with fewer runs than were to train at the same time.
    MemoryIsFull {
        /// Runs that fit.
        runs: usize,
    },
    /// A run ended.
    Ended {
        /// Which one.
        job: &'a Job,
        /// How.
        ending: &'a Result<Ending, Error>,
    },
}

/// Watches a fleet, from the threads of its runs.
pub trait FleetObserver: Sync {
    /// Something happened.
    fn event(&self, _event: &FleetEvent<'_>) {}

    /// Who watches one of the runs, the one of this number.
    fn run<'a>(&'a self, _number: usize, _job: &Job) -> Box<dyn Observer + 'a> {
        Box::new(())
    }

    /// Whether the fleet is to stop: runs under way save everything and end, the others do not begin.
    fn stops(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl FleetObserver for () {}

/// What pays on a GPU: with more, runs only wait for each other.
const AT_ONCE_ON_A_GPU: usize = 12;

/// Trains all of them, `at_once` at the same time (0 for as many as pays on the device), and gives how each ended, in the
/// order of the jobs. An error of one does not end the others; what is wrong with a job's folder, recipe or data is found
/// before the first begins.
pub fn train_all(
    jobs: &[Job],
    at_once: usize,
    observer: &dyn FleetObserver,
) -> Result<Vec<Result<Ending, Error>>, Error> {
    train_on(jobs, &[], at_once, observer)
}

/// The same on several devices, `at_once` on each (0 for one): whichever is free takes the next run, whatever its recipe says.
/// Without devices each run is trained where its recipe says.
pub fn train_on(
    jobs: &[Job],
    devices: &[DeviceChoice],
    at_once: usize,
    observer: &dyn FleetObserver,
) -> Result<Vec<Result<Ending, Error>>, Error> {
    let patient = at_once == 0;
    let mut endings: Vec<Option<Result<Ending, Error>>> = Vec::new();
    let mut waiting = VecDeque::new();
    for (index, job) in jobs.iter().enumerate() {
        if let Some(twin) = jobs[..index].iter().find(|other| other.folder == job.folder) {
            let (one, other) = (twin.recipe.name.clone(), job.recipe.name.clone());
            return Err(Error::SameFolder { one, other, path: job.folder.clone() });
        }
        let finished = job.finished()?;
        if finished.is_none() {
            waiting.push_back(index);
        }
        endings.push(finished.map(Ok));
    }
    let mut yard = Yard::default();
    let place_of = |(number, &i): (usize, &usize)| {
        let device = devices.get(number % devices.len().max(1)).copied();
        yard.place(&jobs[i].recipe, device)
    };
    let places: Vec<Place> = waiting.iter().enumerate().map(place_of).collect::<Result<_, _>>()?;
    for &index in &waiting {
        let recipe = &jobs[index].recipe;
        let dataset = yard.dataset(recipe)?;
        recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
    }
    yard.check_origins(jobs)?;
    let on_each = at_once.max(1);
    let at_once = match at_once {
        n if !devices.is_empty() => n.max(1) * devices.len(),
        0 if !places.is_empty() && places.iter().all(|p| p.gpu.is_some()) => AT_ONCE_ON_A_GPU,
        0 => 1,
        n => n,
    };
    // Runs of one device take turns where they share it.
    let shared = if devices.is_empty() { at_once.min(waiting.len()) > 1 } else { on_each > 1 };
    yard.share(shared);
    observer.event(&FleetEvent::Begins {
        jobs,
        waiting: waiting.make_contiguous(),
        at_once: at_once.min(places.len()),
        place: places.first(),
        note: places.iter().find_map(|p| p.note.as_deref()),
    });
    let gate = yard.gate.clone();
    let mut shared =
        Shared { yard, prepared: VecDeque::new(), waiting, endings, retired: Vec::new(), patient, active: 0 };
    shared.prepare(jobs, devices, at_once);
    let workers = shared.prepared.len();
    if workers < at_once && !shared.waiting.is_empty() {
        observer.event(&FleetEvent::MemoryIsFull { runs: workers });
    }
    let shared = Mutex::new(shared);
    std::thread::scope(|scope| {
        let worker = || {
            // A worker stays on the device of its first run.
            let mut device = None;
            loop {
                // In a statement of its own: the lock must not be held while the run goes on.
                let prepared = lock(&shared).begin_prepared();
                let next = prepared.or_else(|| {
                    let over = || observer.stops() || lock(&shared).waiting.is_empty();
                    if over() {
                        return None;
                    }
                    // Always in this order: alone first, then the lock.
                    let _alone = gate.alone();
                    if over() { None } else { lock(&shared).begin(jobs, device) }
                });
                let Some(Made { index, trainer, on }) = next else { break };
                device = on;
                let (ending, trainer) = match trainer {
                    Ok(mut trainer) => {
                        let mut member = Member { fleet: observer, own: observer.run(index, &jobs[index]) };
                        (trainer.run(&mut member), Some(trainer))
                    }
                    Err(error) => (Err(error), None),
                };
                if let Err(why) = &ending {
                    // Told at once as well, so that a disk that is full hides nothing.
                    let _ = keep_failure(&jobs[index].folder, why);
                }
                observer.event(&FleetEvent::Ended { job: &jobs[index], ending: &ending });
                lock(&shared).ended(index, ending, trainer);
            }
        };
        for _ in 0..workers {
            scope.spawn(worker);
        }
    });
    let Shared { endings, .. } = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ending = |ending: Option<_>| ending.unwrap_or(Ok(Ending::Interrupted { epoch: 1, step: 0 }));
    Ok(endings.into_iter().map(ending).collect())
}

impl Job {
    /// Whether a run folder's run is this one.
    pub fn is_in(&self, folder: &RunFolder) -> Result<bool, Error> {
        Ok(folder.recipe()?.portable() == self.recipe.portable())
    }

    /// Whether the folder's run is one that a report on this job may show. That needs no data, so what they are cannot always
    /// be looked up: pictures may have been prepared.
    pub fn may_show(&self, folder: &RunFolder) -> Result<bool, Error> {
        let (mut own, run) = (self.recipe.portable(), folder.recipe()?.portable());
        if (own.data.source, run.data.source) == (Source::Folder, Source::Prepared) {
            own.data.source = Source::Prepared;
        }
        Ok(own == run)
    }

    /// How it ended, if it is finished already.
    fn finished(&self) -> Result<Option<Ending>, Error> {
        if !self.folder.join("recipe.toml").exists() {
            RunFolder::planned(&self.folder)?;
            return Ok(None);
        }
        let folder = RunFolder::open(&self.folder)?;
        if !self.is_in(&folder)? {
            return Err(Error::OtherRecipe { path: self.folder.clone() });
        }
        Ok(folder.finished(&self.recipe)?.map(Ending::Finished))
    }
}

/// A run that is ready to begin.
struct Made {
    index: usize,
    trainer: Result<Trainer, Error>,
    /// The device, where it is not its recipe's.
    on: Option<DeviceChoice>,
}

/// What the workers take from and give to.
struct Shared {
    yard: Yard,
    prepared: VecDeque<Made>,
    waiting: VecDeque<usize>,
    endings: Vec<Option<Result<Ending, Error>>>,
    /// Runs that ended. They keep their memory until others pause anyway: freeing it takes an idle GPU.
    retired: Vec<Trainer>,
    /// Whether a run for which there is no memory now waits for others to end.
    patient: bool,
    /// Runs under way.
    active: usize,
}

impl Shared {
    /// Makes the first runs, one after another before any begins: the choice of kernels by timing wants a GPU that does
    /// nothing else.
    fn prepare(&mut self, jobs: &[Job], devices: &[DeviceChoice], at_once: usize) {
        while self.prepared.len() < at_once {
            let others = self.prepared.iter().any(|made| made.trainer.is_ok());
            let device = devices.get(self.prepared.len() % devices.len().max(1)).copied();
            if others && self.patient && !self.yard.has_room() {
                break;
            }
            let Some(made) = self.make(jobs, device, others) else { break };
            self.prepared.push_back(made);
        }
    }

    /// The next of those that were made before any began.
    fn begin_prepared(&mut self) -> Option<Made> {
        let next = self.prepared.pop_front()?;
        self.active += 1;
        Some(next)
    }

    /// The next run for a worker, newly made while the others pause; none where there is none left, or none that fits
    /// beside them.
    fn begin(&mut self, jobs: &[Job], device: Option<DeviceChoice>) -> Option<Made> {
        self.retired.clear();
        let next = self.make(jobs, device, self.active > 0)?;
        self.active += 1;
        Some(next)
    }

    /// Makes the run that has waited longest; none where none waits, or where others leave no memory for it.
    fn make(&mut self, jobs: &[Job], on: Option<DeviceChoice>, others: bool) -> Option<Made> {
        let index = self.waiting.pop_front()?;
        match self.yard.trainer(&jobs[index], on) {
            Err(error) if self.patient && others && error.is_gpu_memory() => {
                self.waiting.push_front(index);
                None
            }
            trainer => Some(Made { index, trainer, on }),
        }
    }

    fn ended(&mut self, index: usize, ending: Result<Ending, Error>, trainer: Option<Trainer>) {
        self.active -= 1;
        self.endings[index] = Some(ending);
        self.retired.extend(trainer);
    }
}

/// GPU memory that a fleet leaves free: for graphs, libraries' kernels, and other programs.
const ROOM: usize = 1 << 30;

/// Devices and data sets that runs have in common.
#[derive(Default)]
struct Yard {
    places: HashMap<(DeviceChoice, usize), Place>,
    gate: Arc<Gate>,
    datasets: HashMap<String, Arc<Dataset>>,
}

impl Yard {
    fn place(&mut self, recipe: &Recipe, device: Option<DeviceChoice>) -> Result<Place, Error> {
        let key = (device.unwrap_or(recipe.train.device), recipe.train.threads);
        if let Some(place) = self.places.get(&key) {
            return Ok(place.clone());
        }
        let place = Place::open(key.0, key.1)?;
        self.places.insert(key, place.clone());
        Ok(place)
    }

    /// Says whether runs that are made from now on have a GPU for themselves. On the CPU they share one pool of threads,
    /// which could not go on if a run waited in it.
    fn share(&mut self, shared: bool) {
        for gpu in self.places.values_mut().filter_map(|place| place.gpu.as_mut()) {
            gpu.share(shared.then(|| self.gate.clone()));
        }
    }

    /// Whether every GPU has memory to spare.
    fn has_room(&self) -> bool {
        let gpus = self.places.values().filter_map(|place| place.gpu.as_ref());
        gpus.filter_map(Gpu::free_memory).all(|free| free > ROOM)
    }

    /// What data sets are told apart by.
    fn key(recipe: &Recipe) -> String {
        format!("{:?}", recipe.data)
    }

    fn dataset(&mut self, recipe: &Recipe) -> Result<Arc<Dataset>, Error> {
        let key = Yard::key(recipe);
        if let Some(dataset) = self.datasets.get(&key) {
            return Ok(dataset.clone());
        }
        let dataset = Arc::new(recipe.data.open()?);
        self.datasets.insert(key, dataset.clone());
        Ok(dataset)
    }

    fn trainer(&mut self, job: &Job, device: Option<DeviceChoice>) -> Result<Trainer, Error> {
        let (place, dataset) = (self.place(&job.recipe, device)?, self.dataset(&job.recipe)?);
        let folder = match job.folder.join("recipe.toml").exists() {
            true => RunFolder::open(&job.folder)?,
            false => RunFolder::planned(&job.folder)?,
        };
        let mut trainer = Trainer::in_folder(job.recipe.clone(), folder, &dataset, &place)?;
        trainer.claim()?;
        Ok(trainer)
    }
}

/// Watches one run of a fleet: whatever its own observer says, it stops when the fleet does.
struct Member<'a> {
    fleet: &'a dyn FleetObserver,
    own: Box<dyn Observer + 'a>,
}

impl Member<'_> {
    fn answer(&self, own: Answer) -> Answer {
        Ok(if self.fleet.stops() { ControlFlow::Break(()) } else { own? })
    }
}

impl Observer for Member<'_> {
    fn begin(&mut self, run: &RunView<'_>) -> Answer {
        let own = self.own.begin(run);
        self.answer(own)
    }

    fn step(&mut self, run: &RunView<'_>, step: &StepReport) -> Answer {
        let own = self.own.step(run, step);
        self.answer(own)
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        let own = self.own.epoch(run);
        self.answer(own)
    }

    fn notice(&mut self, run: &RunView<'_>, notice: &Notice) {
        self.own.notice(run, notice);
    }

    fn end(&mut self, run: &RunView<'_>, ending: &Ending) -> Result<(), ObserverError> {
        self.own.end(run, ending)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(folder: &std::path::Path, names: &[&str]) -> Vec<Job> {
        let job = |name: &&str| {
            let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
            recipe.name = name.to_string();
            (recipe.train.epochs, recipe.train.device, recipe.train.threads) = (1, DeviceChoice::Cpu, 1);
            recipe.train.seed = name.len() as u64;
            Job { folder: folder.join(name), recipe: recipe.checked().unwrap() }
        };
        names.iter().map(job).collect()
    }

    #[test]
    fn each_run_of_a_fleet_is_what_it_is_alone() {
        let temp = std::env::temp_dir().join(format!("ftprop-fleet-{}", std::process::id()));
        let names = ["a", "bb", "ccc"];
        let files =
            |part: &str| names.map(|n| std::fs::read(temp.join(part).join(n).join("checkpoint.safetensors")).unwrap());
        let train = |part: &str, at_once| train_all(&jobs(&temp.join(part), &names), at_once, &()).unwrap();
        let together = train("together", 2);
        let apart = train("apart", 1);
        for (ending, other) in together.iter().zip(&apart) {
            let (Ok(Ending::Finished(a)), Ok(Ending::Finished(b))) = (ending, other) else { panic!("{ending:?}") };
            assert_eq!((&a.name, a.test), (&b.name, b.test));
        }
        assert_eq!(files("together"), files("apart"));
        // Two devices, which here are the same one twice.
        let spread = train_on(&jobs(&temp.join("spread"), &names), &[DeviceChoice::Cpu; 2], 0, &()).unwrap();
        assert!(spread.iter().all(|e| matches!(e, Ok(Ending::Finished(_)))), "{spread:?}");
        assert_eq!(files("spread"), files("apart"));

        // Again: nothing is left to do, and another recipe is not taken for this one.
        let before = files("apart");
        std::fs::remove_file(temp.join("apart/a/checkpoint.safetensors")).unwrap();
        let again = train("apart", 2);
        assert!(again.iter().all(|e| matches!(e, Ok(Ending::Finished(_)))), "{again:?}");
        assert!(!temp.join("apart/a/checkpoint.safetensors").exists(), "a finished run was run again");
        assert_eq!(before[2], std::fs::read(temp.join("apart/ccc/checkpoint.safetensors")).unwrap());
        let mut other = jobs(&temp.join("apart"), &names);
        let mut recipe = other[1].recipe.clone().into_recipe();
        recipe.train.batch = 48;
        other[1].recipe = recipe.checked().unwrap();
        let error = train_all(&other, 1, &()).unwrap_err().to_string();
        assert!(error.contains("another recipe") && error.contains("bb"), "{error}");

        // Stopped before it begins, a run is left for later.
        struct Stopped;
        impl FleetObserver for Stopped {
            fn stops(&self) -> bool {
                true
            }
        }
        let stopped = train_all(&jobs(&temp.join("later"), &names), 1, &Stopped).unwrap();
        assert!(stopped.iter().all(|e| matches!(e, Ok(Ending::Interrupted { .. }))), "{stopped:?}");
        std::fs::remove_dir_all(&temp).unwrap();
    }
}
