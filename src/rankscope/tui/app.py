"""The app: it loads in a thread, shows the main screen, and reports an error in one line."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import textual.screen
from rich.text import Text
from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.driver import Driver
from textual.filter import ANSIToTruecolor, Monochrome, NoColor
from textual.screen import Screen
from textual.worker import Worker, WorkerState, get_current_worker

from rankscope.kinds.finding_kinds import STATUSES
from rankscope.text.escaping import plain
from rankscope.tui.actions import Hint, bindings_for, use_keys
from rankscope.tui.options import Load, Look, Progress, ProgressLike, ThemeChoice, ThemeName, ViewOptions
from rankscope.tui.quiet import QUIET_S, Quiet
from rankscope.tui.text_bars import TextBar, Unstyled, progress_line
from rankscope.tui.themes import textual_theme
from rankscope.tui.worker_messages import Completed, Loaded, Progressed, ReadingChanged, Updated

if TYPE_CHECKING:
    from rankscope.tui.detail.screens.page import Page
    from rankscope.tui.lanes_screen import LanesScreen
    from rankscope.tui.live.following import Following
    from rankscope.tui.live.prepared import Prepared, Watch
    from rankscope.watching.update import FollowProgress, JobUpdate


SLOW_FRAMES = 15
"""Frames a second over SSH."""
FRAMES = 240
"""Most frames a second elsewhere. After a slow frame the next one waits up to two periods."""
PROGRESS_EVERY = 0.1
"""Seconds between two lines of progress, at least."""


class RankscopeApp(App[None]):
    """Shows the data of a job. It reads no file itself: `load` reads in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for("app")
    CSS = """
    Screen { background: $background; color: $foreground; }
    ChoiceScreen { background: transparent; }
    OptionList > .option-list--option-highlighted, OptionList:ansi > .option-list--option-highlighted {
        background: $block-cursor-background; color: $block-cursor-foreground; text-style: $cursor-style;
    }
    Input > .input--placeholder { color: $dim; }
    ToastRack { display: none; }
    LanesScreen.-watched ToastRack { display: block; }
    """

    def __init__(
        self, load: Load | None, title: str, options: ViewOptions, watch: Watch | None = None, rest: Load | None = None
    ) -> None:
        """Gets the job from `load`, or from `watch` while the job runs.

        If `load` reads only a part of the files, `rest` reads all of them while the screen shows that part.
        """
        super().__init__(driver_class=_driver_class(options))
        self.load, self.rest = load, rest
        self.watch_job = watch
        use_keys(options.keys)
        self.options = options = replace(options, theme=ThemeChoice(options.theme.name))
        self.failure: BaseException | None = None
        """The error that ended the app; `run` raises it."""
        for name in get_args(ThemeName):
            self.register_theme(textual_theme(Look(name, options.palette)))
        self.theme = options.theme.name
        self.animation_level = "none"
        # turns filters off: Textual would make greys that are hard to tell apart, and round colours of the palette
        self.no_color = options.palette == "none"
        unwanted = (Monochrome, NoColor, ANSIToTruecolor)
        kept = [line_filter for line_filter in self._filters if not isinstance(line_filter, unwanted)]
        self._filters = [*kept, NoColor()] if self.no_color else kept
        # Textual reads this from the environment at import, before the link is known.
        textual.screen.UPDATE_PERIOD = 1 / (SLOW_FRAMES if options.slow_link else FRAMES)  # type: ignore[misc]
        self.opening = OpeningScreen(title, options)
        self._lanes: LanesScreen | None = None
        self.quiet = Quiet()

    @property
    def lanes(self) -> LanesScreen:
        """The main screen; RuntimeError if there is nothing to show yet."""
        if self._lanes is None:
            raise RuntimeError("nothing is loaded yet")
        return self._lanes

    @property
    def last_words(self) -> str:
        """The verdict at the end, for the terminal's history; "" if nothing was loaded."""
        if self._lanes is None:
            return ""
        analysis = self._lanes.boards.whole.analysis
        return f"{STATUSES[analysis.status].badge}: {plain(analysis.verdict)}"

    def get_default_screen(self) -> Screen[None]:
        """The screen that is shown during loading."""
        return self.opening

    def on_mount(self) -> None:
        """Starts to load after the first screen is drawn: the two would slow down each other."""
        self.set_keymap(dict(self.options.keys))
        if self.watch_job is not None:
            self.set_interval(QUIET_S, self.quiet.search)
            self.call_after_refresh(self._follow, self.watch_job)
        elif self.load is not None:
            self.call_after_refresh(self._load, self.load)

    async def on_event(self, event: events.Event) -> None:
        """Records the time of the last input."""
        if isinstance(event, events.InputEvent):
            self.quiet.pressed()
        await super().on_event(event)

    def exit(self, *result: Any, **how: Any) -> None:
        """Ends the app and the following of the job."""
        if self.watch_job is not None:
            self.watch_job.stop()
        super().exit(*result, **how)

    def on_unmount(self) -> None:
        """Ends the following of the job, for any end of the app."""
        if self.watch_job is not None:
            self.watch_job.stop()

    @work(thread=True, exit_on_error=False, group="load")
    def _follow(self, watch: Watch) -> None:
        watch.run(self._published)

    def _published(self, news: JobUpdate | FollowProgress | Prepared) -> None:
        """Sends an update to the screen, with its prepared lanes; runs in the thread of following."""
        from rankscope.tui.detail.operation_index import OpIndex
        from rankscope.tui.live.prepared import Prepared, prepare
        from rankscope.watching.update import FollowProgress

        if isinstance(news, FollowProgress):
            self.post_message(ReadingChanged(news))
            return
        import_module("rankscope.tui.lanes_screen")
        made = news if isinstance(news, Prepared) else prepare(news)
        index = OpIndex(made.model.dataset)
        index.warm()
        self.post_message(Updated(made.update, made.model, made.overview, made.marks, index))

    @property
    def _following(self) -> Following | None:
        """The controller that follows the watched job; None if there is none yet."""
        from rankscope.tui.live.following import Following

        news = self._lanes.news if self._lanes is not None else None
        return news if isinstance(news, Following) else None

    @on(Updated)
    def _updated(self, event: Updated) -> None:
        from rankscope.tui.lanes_screen import LanesScreen

        following = self._following
        if following is not None:
            # what a key has moved is drawn first
            self.lanes.call_after_refresh(following.take, event)
            return
        self._lanes = LanesScreen(event.model, event.overview, self.options, event)
        self.push_screen(self._lanes)

    @on(ReadingChanged)
    def _reading_changed(self, event: ReadingChanged) -> None:
        following, reading = self._following, event.reading
        if following is not None:
            self.lanes.call_after_refresh(following.take_reading, reading)
        elif reading.unread:
            self.opening.show_progress(Progress(reading.files - reading.unread, reading.files))
        else:
            what = "nothing to show yet" if reading.files else "no files yet"
            self.opening.say(plain(reading.trouble) or f"{what}, {reading.how}")

    @work(thread=True, exit_on_error=False, group="load")
    def _load(self, load: Load) -> None:
        dataset, analysis = load(ProgressThrottle(self))
        from rankscope.tui.model import build_model
        from rankscope.tui.overview import worst_by_column

        import_module("rankscope.tui.lanes_screen")  # here it takes no time from the keys
        self.post_message(Progressed(Progress(0, 0, "arranging the lanes")))
        model = build_model(dataset, analysis)
        self.post_message(Loaded(model, worst_by_column(model)))
        if self.rest is None or not model.is_partial:
            return
        try:
            dataset, analysis = self.rest(ProgressThrottle(self))
        except Exception as error:  # noqa: BLE001 - what is shown stays: the reason is told on the screen
            self.post_message(Completed(None, None, f"{type(error).__name__}: {error}"))
            return
        model = build_model(dataset, analysis)
        self.post_message(Completed(model, worst_by_column(model)))

    @on(Completed)
    def _completed(self, event: Completed) -> None:
        if event.model is not None and event.overview is not None:
            self.lanes.news.complete(event.model, event.overview)
        else:
            self.lanes.news.give_up(event.problem)

    @on(Progressed)
    def _progressed(self, event: Progressed) -> None:
        self.opening.show_progress(event.progress)

    @on(Loaded)
    def _loaded(self, event: Loaded) -> None:
        from rankscope.tui.lanes_screen import LanesScreen

        self._lanes = LanesScreen(event.model, event.overview, self.options)
        self.push_screen(self._lanes)

    @on(Worker.StateChanged)
    def _worker_changed(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR and event.worker.group == "load":
            self.failure = event.worker.error
            self.exit(return_code=2)

    def on_resize(self) -> None:
        """Redraws all: a resize may move the text on the terminal."""
        self.forget_terminal()

    def forget_terminal(self) -> None:
        """Sends all cells again with the next frame."""
        forget = getattr(self._driver, "forget", None)
        if forget is not None:
            forget()

    def action_redraw(self) -> None:
        """Draws everything anew, after another program has written on the terminal."""
        self.forget_terminal()
        self.refresh(layout=True)

    def _fatal_error(self) -> None:
        """Ends the app without Textual's pages of local variables."""
        self.failure = self._exception
        self._close_messages_no_wait()

    def run(self, **how: Any) -> None:
        """Runs until the user quits; raises the error of loading, or an error of the app."""
        super().run(**{"mouse": self.options.mouse, **how})
        if self.failure is not None:
            raise self.failure

    def watch_theme(self, name: str) -> None:
        """Draws everything in the colours of another theme."""
        known = next((theme for theme in get_args(ThemeName) if theme == name), None)
        if known is None or known == self.options.theme.name:
            return
        self.options.theme.name = known
        for screen in self.screen_stack:
            for widget in screen.walk_children(Unstyled):
                widget.repaint()

    def action_theme(self) -> None:
        """Lets a theme be chosen; the screen shows the one under the cursor."""
        from rankscope.tui.popups import ThemeScreen

        self.push_screen(ThemeScreen(self.options, self.theme))

    def action_press(self, key: str) -> None:
        """Presses a key, for a click on its name."""
        self.simulate_key(key)

    def action_help(self) -> None:
        """Shows all keys, those of the view on the screen first."""
        from rankscope.tui.help_screen import HelpScreen

        title, hints = "", list[Hint]()
        if self.screen is self._lanes:
            title, hints = self.lanes.here()
        elif (page := self._page) is not None:
            title, hints = f"This view ({page.title_text})", page.hints(every=True)
        self.push_screen(HelpScreen(self.options, title, hints))

    @property
    def _page(self) -> Page | None:
        """The page on the screen; None while there is another screen."""
        if self._lanes is None:
            return None
        from rankscope.tui.detail.screens.page import Page

        return self.screen if isinstance(self.screen, Page) else None

    def action_command_palette(self) -> None:
        """Lets an action be chosen by its name."""
        if self.screen is self._lanes:
            self.lanes.choose_action()
        elif (page := self._page) is not None:
            page.choose_key()


def _driver_class(options: ViewOptions) -> type[Driver] | None:
    if not options.changed_cells or sys.platform == "win32":
        return None
    from rankscope.tui.driver import driver_for

    return driver_for(waits=options.slow_link)


class ProgressThrottle:
    """Passes on progress, at most every PROGRESS_EVERY seconds."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._next = 0.0
        self._worker = get_current_worker()

    def __call__(self, progress: ProgressLike) -> None:
        """Tells the screen, unless the last call was just before."""
        now = monotonic()
        if now >= self._next and not self._worker.is_cancelled:
            self._next = now + PROGRESS_EVERY
            self._app.post_message(Progressed(progress))


class OpeningScreen(Screen[None]):
    """Shows the input and the progress of loading."""

    def __init__(self, title: str, options: ViewOptions) -> None:
        super().__init__()
        self._subject, self._options = title, options
        self._progress: ProgressLike | None = None

    def compose(self) -> ComposeResult:
        """Two lines."""
        yield TextBar("title", self._options, "panel")
        yield TextBar("progress", self._options)

    def on_resize(self) -> None:
        """Writes the lines for the present width."""
        self._draw()

    def show_progress(self, progress: ProgressLike) -> None:
        """Shows the progress of loading."""
        self._progress = progress
        self._draw()

    def say(self, text: str) -> None:
        """Shows a text instead of the progress."""
        self._progress = None
        self.query_one("#progress", TextBar).put(Text(f" {text}"))

    def _draw(self) -> None:
        for name, progress in (("title", None), ("progress", self._progress)):
            if name == "title" or progress is not None:
                line = progress_line(self._subject, progress, self.size.width, ascii_only=self._options.ascii_only)
                self.query_one(f"#{name}", TextBar).put(line)
